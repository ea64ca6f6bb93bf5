// Command bench-exported takes models as people exported them through plan
// profile, solve and serve, asks each of them, and holds the answers against
// ONNX Runtime's for the file itself: of one sample, of several in one request, and of
// several requests at once, which the policy batches. A command that fails or takes
// too long is a row of the table. Another part drives models at the rates that their plans state.
//
//	cases.go   the models with the flags that they need
//	steps.go   the steps for each model
//	ask.go     samples, and requests over the Open Inference Protocol, in binary
//	drive.go   models driven at the rates that their plans state
//	main.go    flags, the table of models and the figures
package main
