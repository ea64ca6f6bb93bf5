// Package slots gives numbers to values that come and go, so that a number is used again and
// no value is allocated where one of the same number ended.
package slots
