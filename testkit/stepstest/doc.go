// Package stepstest draws lines of text for tests and instruments of pipelines
// that read them, and spells what they answer.
package stepstest
