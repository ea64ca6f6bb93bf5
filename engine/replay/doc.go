// Package replay is an engine that needs no library. A block takes the time that a function (in practice: a
// profile) gives, and answers with bytes that depend only on its inputs. So a plan can be served, and its executor
// tested, without models.
//
// The answer of a chain of blocks depends on the inputs of its first block and on the model, not on where it was
// cut or how samples were batched: each sample's outputs start with a digest of that sample, which every block
// passes on unchanged. Check reports whether an answer belongs to a request.
package replay
