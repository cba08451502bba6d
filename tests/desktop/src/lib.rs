//! Holds only the tests of the real window, in `tests/`.
