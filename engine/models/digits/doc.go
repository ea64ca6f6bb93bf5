// Package digits trains a family of five classifiers of handwritten digits, for
// cascades of real models: digits-4, digits-16, digits-64 and digits-256 have
// one hidden layer of so many units, digits-conv is a convolutional network
// that looks at every image in 25 places and averages what it sees.
//
// The images are those that set-up fetches (third_party/digits): 10,000, of
// which one half trains the family and the other half is kept apart as labelled
// samples, from which plans learn certainties. The same seed gives the same
// weights on one architecture, with any number of processors: a batch is
// divided into a fixed number of lanes whose gradients are added in order.
//
// The steps: Load reads the images, Train makes the weights, Classifier.Model
// the ONNX graph.
package digits
