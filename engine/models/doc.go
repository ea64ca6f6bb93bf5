// Package models is the catalogue of the models that `make setup` fetches:
// nine CNNs, which come without weights and get seeded ones, and an OCR
// detector and recogniser with their real weights; and of the models that this
// project makes itself: transformers of real layer shapes, tiny classifiers
// with random weights, and a family of classifiers of digits that is trained on
// the spot.
// Tests, examples and the demo use it.
package models
