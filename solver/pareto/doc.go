// Package pareto finds the points that no other point beats. A point has a cost, or needs of
// several kinds, and a value. Less cost and more value are better.
//
// Front: the points that no other one beats by one cost. Undominated: the same by several needs.
// Envelope: the largest mean value of a mixture of points, by its mean cost.
//
//	front.go     fronts (sorting: Kung, Luccio and Preparata 1975)
//	envelope.go  upper concave envelopes (a scan over sorted points: Andrew 1979)
package pareto
