// Package fewdraws runs property tests whose draws take long, such as those that solve problems.
package fewdraws
