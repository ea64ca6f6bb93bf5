// Package digits trains a family of five classifiers of handwritten digits, for cascades of real models. digits-4,
// digits-16, digits-64 and digits-256 have one hidden layer with that number of units. digits-conv is a
// convolutional network that looks at every image in 25 positions and averages the results.
//
// The set-up fetches 10,000 images (third_party/digits). One half trains the family. The other half is kept as
// labelled samples, from which plans learn certainties. The same seed gives the same weights on one architecture,
// with any number of processors: a batch is divided into a fixed number of lanes, whose gradients are added in
// order.
//
// Lane: the part of a batch that one goroutine works on, with gradients of its own.
//
// The steps are: Load reads the images (images.go), Train computes the weights (train.go; net.go, mlp.go,
// conv.go), and Classifier.Model makes the ONNX graph (onnx.go).
package digits
