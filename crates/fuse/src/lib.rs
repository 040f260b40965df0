//! A framework for file systems in user space at kernel speed.
