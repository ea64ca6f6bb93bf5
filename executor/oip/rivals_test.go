//go:build rivals

package oip

import gojson "github.com/goccy/go-json"

// init adds a library that takes longer to compile than this package and all its tests.
func init() { fastestJSON = gojson.Unmarshal }
