// Package steps has the steps that are computed in Go between the models of an application. A step before a model
// makes its inputs from what its module reads and what the client has sent. A step after a model makes from its
// outputs what other modules read, and may choose the path of the request. Examples: cut boxes out of images, turn
// lines of text upright, decode scores into text. A module of a workload names its steps (formats.PreSteps,
// formats.PostSteps).
//
// Vocabulary:
//
//   - Binding: a step is bound once to the tensors of its module, and refuses tensors that do not fit.
//   - Path: which of several continuations a request takes after a module, by number.
//   - Item: one of several things that a module runs on, such as a line of text.
//   - Passage: a text from which questions are answered, with its vector.
//   - Map: a detector's score for each pixel.
//
// A bound step works on one sample at a time, keeps nothing between samples and allocates nothing. It accepts any
// bytes without failing: a detector that finds nothing, or outputs nonsense, gives an empty box, and the request
// takes the path for that case.
//
// The steps of OCR follow PaddleOCR's pipeline for PP-OCRv4: a detector with differentiable binarization (Liao et
// al., AAAI 2020), a classifier of orientation, and a recogniser that is decoded by CTC (Graves et al., ICML 2006).
// The step ocr-box gives one line of text, that of the largest box found. ocr-boxes gives all of them and their
// number, for modules that run once per line.
//
// Order of reading: steps.go (the steps by name), image.go, boxes.go, text.go, passages.go and vectors.go.
package steps
