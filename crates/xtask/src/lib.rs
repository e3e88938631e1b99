//! Checks and chores of the repository.
