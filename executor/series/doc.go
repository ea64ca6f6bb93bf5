// Package series has what the names and labels of all series for Prometheus share.
package series
