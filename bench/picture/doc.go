// Package picture draws the pictures of the programs in bench/, as SVG.
//
//	panels.go    Panels: line plots above each other, by gonum.org/v1/plot
package picture
