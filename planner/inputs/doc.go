// Package inputs reads the documents that plans are made from, and records them in the plan.
package inputs
