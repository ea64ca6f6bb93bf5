// Package steps has what is done in Go between the models of an application:
// before a model, what it takes is made of what its module reads and of what the
// client sent; behind it, what others read is made of what it gave. Boxes are cut
// out of images here, lines of text are turned upright, scores become text. A
// module of a workload names its steps (formats.PreSteps, formats.PostSteps).
//
// A step is bound once to the tensors of its module, where it refuses what does not
// fit. It then works on one sample at a time, keeps nothing between samples and
// allocates nothing. Whatever bytes it is given, it does not fail: a detector that
// sees nothing, or nonsense, gives an empty box, and the way on that stands for
// that is taken.
//
//	steps.go  the steps by name, and how they are bound
//	image.go  images of bytes as tensors: normalised, cut out, resized, turned
//	boxes.go  the boxes of text lines in a map of probabilities
//	text.go   the text that a recogniser's scores spell
//	passages.go  words of a text as a vector, and prompts with the nearest passages
//
// The steps of OCR follow PaddleOCR's pipeline for PP-OCRv4: detector with
// differentiable binarization (Liao et al., AAAI 2020), a classifier of
// orientation, and a recogniser that is decoded by CTC (Graves et al., ICML 2006).
// The step ocr-box gives one line of text, that of the largest box that is found.
// ocr-boxes gives all of them and their number, for modules that run once per line.
package steps
