// Command pard holds policies of pipelines under one deadline against each other
// and against a bound that no policy can beat.
package main
