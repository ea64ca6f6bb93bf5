// Package picture writes the parts of SVG that the benches' pictures are made of.
package picture
