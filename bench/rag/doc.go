// Command rag compares the plans of applications with language models with the best split of their devices by
// hand (make bench NAME=rag-splits). It draws applications that answer from documents (testkit/workflows). For each
// it plans as a user does who says nothing, and looks at every split of the devices between its language
// models, each alone or with others, and its other models, which are together. The splits that sustain most in
// simulation are certified by the same search, with the devices given.
//
//	splits.go  the best split by hand
//	main.go    the table and its figures
package main
