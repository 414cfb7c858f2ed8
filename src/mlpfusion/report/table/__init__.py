"""What `table` shows of files that are no profile: those that other verbs and the scripts of `bench/` have written."""
