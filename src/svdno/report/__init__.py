"""Tables, figures and one HTML page, made from the record files of trained models without PyTorch."""
