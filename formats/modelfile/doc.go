// Package modelfile identifies the files that a model is made of: its graph, its weights, and the
// libraries of custom operators that it runs with. Engines need this and no document.
package modelfile
