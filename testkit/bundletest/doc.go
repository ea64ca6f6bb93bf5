// Package bundletest opens the reference data of PPipe (USENIX ATC 2025) for
// tests: measurements, the authors' own plans and recorded arrivals. The data
// are not part of this repository; where they are absent a test skips and says
// so.
package bundletest
