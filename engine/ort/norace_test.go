//go:build !race

package ort

const raced = false
