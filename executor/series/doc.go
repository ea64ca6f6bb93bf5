// Package series has the parts of names and labels that all Prometheus series of this program share. Its one type is
// Labels, in series.go.
package series
