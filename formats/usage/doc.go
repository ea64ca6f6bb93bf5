// Package usage holds the error about what a user asked for, and checks of the values of flags that return it. The
// command line ends with exit code 2 for it.
package usage
