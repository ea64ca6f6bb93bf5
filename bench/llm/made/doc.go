// Package made has the plan of made-up servers that the instruments beside it start.
package made
