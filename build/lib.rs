//! Builds the static programs.
