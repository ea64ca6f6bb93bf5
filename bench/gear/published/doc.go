// Package published holds the workloads on which gear plans are measured: the
// families of models, their answers and the traces.
//
//	family.go     bert5, llama4 (synthetic answers), imdb3 (real ones)
//	synthetic.go  the joint model that the synthetic answers are drawn from
//	traces.go     twenty minutes of Twitter and of Azure functions
//	rates.go      arrivals from rates per second: even, or Poisson
//
// Traces and real answers are read from a folder of reference data that is not
// part of this repository (Dir); what needs none of it can be had without.
package published
