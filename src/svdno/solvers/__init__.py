"""HOW equations are solved: numerics that know no equation, batched over samples, in the precision they are given."""
