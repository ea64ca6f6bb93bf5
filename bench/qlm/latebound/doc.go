// Package latebound proves how many requests every order and assignment of request groups makes late:
// a bound by the capacity of instances before due times, which instruments hold searches against.
package latebound
