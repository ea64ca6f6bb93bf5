// Package pooldraw draws problems of pooled pipelines, makes up large ones, and lists their pipelines by loops of its
// own, for the tests of the steps of planner/pool.
package pooldraw
