// Package targets lists the targets of plan export.
package targets
