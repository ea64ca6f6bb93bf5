// Package durabletest holds a store of requests against the contract of package
// durable. Both stores run the same tests.
package durabletest
