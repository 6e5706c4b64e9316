<?php
// Import questions into a Moodle, with its own importer, and print what it has then as JSON.
// usage: php moodle_import.php MOODLE_FOLDER FILE.xml
define('CLI_SCRIPT', true);
require($argv[1] . '/config.php');
require_once($CFG->libdir . '/questionlib.php');
require_once($CFG->dirroot . '/question/format.php');
require_once($CFG->dirroot . '/question/format/xml/format.php');

$USER = get_admin();
$context = context_system::instance();
$importer = new qformat_xml();
$importer->setCategory(question_get_default_category($context->id) ?: question_make_default_categories([$context]));
$importer->setContexts([$context]);
$importer->setFilename($argv[2]);
$importer->setCatfromfile(true);
$importer->setStoponerror(true);
$importer->set_display_progress(false);
if (!$importer->importpreprocess() || !$importer->importprocess()) {
    exit(1);
}
$imported = [];
foreach ($importer->questionids as $id) {
    $question = question_bank::load_question($id);
    $answers = [];
    foreach ($question->answers as $answer) {
        $answers[] = [$answer->answer, (float) $answer->fraction, $answer->feedback];
    }
    $imported[] = [
        'name' => $question->name,
        'text' => $question->questiontext,
        'points' => (float) $question->defaultmark,
        'type' => $question->get_type_name(),
        'answers' => $answers,
    ];
}
echo "\n" . json_encode($imported) . "\n";
