// Package drop
package drop
