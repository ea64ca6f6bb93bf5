// Package importers turns files of other tools into documents.
//
// An Importer describes one verb below plan import: its name, its flags, what a file of its source looks like, and the
// function that reads the files and saves a document. The importers are listed in importers/sources, one line each;
// each is a package below this one. The command plan import knows none of them by name.
//
// A Run is what an importer is given: the arguments, the flags, a Printer, and how a profile is extended.
// Readers that other parts of the project use, too, are in formats/importer.
package importers
