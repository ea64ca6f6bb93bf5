// Package modelinputs has the flags about the files of models: sizes and values of their inputs, and the libraries of
// custom operators that they need.
package modelinputs
