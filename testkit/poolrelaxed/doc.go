// Package poolrelaxed solves the relaxation of problems of pooled pipelines, for the tests of the steps that start from it.
package poolrelaxed
