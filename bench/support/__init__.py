"""What several commands of `bench/` share: bodies, known answers, load, servers, models folders, figures and goals."""
