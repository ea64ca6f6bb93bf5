// Package literal reads the values of a tensor as people give them on a command
// line: a number, true or false, a JSON array, or a file of JSON or NumPy (.npy).
package literal
