// Package replay is an engine that needs no library: a block takes the time
// that a function (in practice: a profile) tells, and answers with bytes that
// follow from its inputs alone. A plan can be served, and its executor tested,
// without models.
//
// What a chain of blocks answers depends on the inputs of its first block and
// on the model, not on where it was cut or how samples were batched: each
// sample's outputs start with a digest of that sample, which every block hands
// on unchanged. Check tells whether an answer belongs to a request.
package replay
