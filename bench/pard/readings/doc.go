// Package readings has what bench/pard compares PARD and feas with: Nexus and Clipper++ as they can be read,
// PARD's ablations (EuroSys '26, §5.3), and parts that are not in force by default. Each registers by name
// for plans of applications.
//
// readings.go lists them, parts.go has the modules' parts of the SLO, entry.go admission at the entry.
package readings
