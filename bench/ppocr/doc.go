// Package ppocr writes the models of PP-OCRv4 for images of a size and measures them
// on one core of this machine, for the benches that serve them.
package ppocr
