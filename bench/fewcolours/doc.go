// Command fewcolours writes PNG pictures again with at most 32 colours, so that screenshots in documents stay small. Everything
// is in main.go.
package main
