// Command bench-exported takes models as people exported them through plan
// profile, solve and serve, asks each of them a request, and holds the answer
// against ONNX Runtime's for the file itself. Its table and figures.json
// are its output.
//
//	cases.go   the models with the flags that they need
//	ask.go     a request over the Open Inference Protocol, in binary
//	main.go    the steps for each model
package main
