// Package sources lists the importers of plan import.
package sources
