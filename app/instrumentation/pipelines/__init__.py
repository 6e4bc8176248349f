"""What is told and advised of pipelines."""
