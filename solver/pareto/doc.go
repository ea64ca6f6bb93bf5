// Package pareto says which of many points no other one beats. A point has a cost, or needs
// of several kinds, and a value. The less the former and the more the latter, the better.
//
//	front.go     the front by one cost, and what is undominated by several needs
//	envelope.go  the upper concave envelope of points: what their mixtures reach
//
// A front is found by sorting (Kung, Luccio and Preparata 1975), the envelope by a scan over
// sorted points (Andrew 1979).
package pareto
