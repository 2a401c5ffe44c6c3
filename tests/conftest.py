"""Shape annotations are checked while the tests run."""

from jaxtyping import install_import_hook

install_import_hook("svdno", "beartype.beartype")
