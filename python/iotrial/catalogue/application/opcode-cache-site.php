<?php
/*
 * Makes the site of the study application/opcode-cache in the working folder: php -- NUMBER_OF_PAGES < this file
 *
 * It is built as content management systems are: a front controller, a table of routes, classes found by an autoloader, a file
 * each, templates, and pages with style sheets, scripts and images. No page holds anything that is new each time, so that the
 * same request has the same answer for ever. All numbers come from one linear congruential generator.
 */
declare(strict_types=1);

const CLASSES = 240;
const OF_A_PAGE = 150;
const IMAGES = 6;
/* Long ago: an opcode cache passes over files that were changed within the last seconds. */
const MADE_AT = 1600000000;

$pages = (int) ($argv[1] ?? 40);
if ($pages < 1 || $pages > 5000) {
    fwrite(STDERR, "wanted 1 to 5000 pages\n");
    exit(1);
}
$state = 20090705;

function drawn(int $below): int
{
    global $state;
    $state = ($state * 1103515245 + 12345) & 0x7fffffff;
    return ($state >> 8) % $below;
}

const WORDS = ['article', 'archive', 'author', 'block', 'branch', 'cache', 'chapter', 'column', 'comment', 'content',
    'editor', 'entry', 'field', 'filter', 'folder', 'footer', 'format', 'gallery', 'header', 'image', 'index', 'item',
    'label', 'layout', 'letter', 'link', 'list', 'menu', 'module', 'node', 'number', 'page', 'panel', 'print', 'region',
    'report', 'route', 'search', 'section', 'series', 'source', 'table', 'teaser', 'theme', 'title', 'topic', 'view', 'word'];

function words(int $number): string
{
    $found = [];
    for ($i = 0; $i < $number; $i++) {
        $found[] = WORDS[drawn(count(WORDS))];
    }
    return implode(' ', $found);
}

function keep(string $path, string $text): void
{
    if (!is_dir(dirname($path))) {
        mkdir(dirname($path), 0755, true);
    }
    if (file_put_contents($path, $text) !== strlen($text)) {
        fwrite(STDERR, "$path: not written\n");
        exit(1);
    }
    touch($path, MADE_AT);
}

/* A class: some of its methods are called for a page, most of them are only compiled, as in any library. */
function library(int $number): string
{
    $text = "<?php\ndeclare(strict_types=1);\n\nnamespace Site\\Part;\n\n/** " . ucfirst(words(9)) . ".\n *\n * " . words(14)
        . ".\n */\nfinal class Part$number implements \\Site\\Piece\n{\n    private array \$options = [\n";
    for ($i = 0; $i < 12; $i++) {
        $text .= "        '" . WORDS[drawn(count(WORDS))] . "_$i' => ['weight' => " . drawn(100) . ", 'title' => '" . words(3)
            . "', 'open' => " . (drawn(2) ? 'true' : 'false') . "],\n";
    }
    $text .= "    ];\n\n    public function __construct(private \\Site\\Context \$context, private int \$depth = 0)\n    {\n    }\n\n"
        . "    public function weight(array \$page): int\n    {\n        \$sum = " . drawn(50) . ";\n        foreach (\$this->options as "
        . "\$name => \$option) {\n            if (\$option['open'] && strlen(\$name) > " . (4 + drawn(6)) . ") {\n"
        . "                \$sum += \$option['weight'] * (1 + \$page['number'] % " . (2 + drawn(7)) . ");\n            }\n        }\n"
        . "        return \$sum;\n    }\n\n    public function render(array \$page): string\n    {\n        \$parts = [];\n"
        . "        foreach (\$this->options as \$name => \$option) {\n            if (\$option['weight'] > " . (60 + drawn(30))
        . ") {\n                \$parts[] = \$this->context->tag('li', ucfirst(\$option['title']), ['class' => \$name]);\n"
        . "            }\n        }\n        return implode('', \$parts);\n    }\n";
    $methods = 3 + drawn(5);
    for ($m = 0; $m < $methods; $m++) {
        $name = WORDS[drawn(count(WORDS))] . ucfirst(WORDS[drawn(count(WORDS))]) . $m;
        $text .= "\n    /**\n     * " . ucfirst(words(8)) . ".\n     *\n     * @param array<string, mixed> \$given " . words(4)
            . "\n     * @return array<string, mixed> " . words(3) . "\n     */\n    public function $name(array \$given, string \$separator = ', '"
            . "): array\n    {\n        \$found = ['" . WORDS[drawn(count(WORDS))] . "' => " . drawn(1000) . "];\n"
            . "        foreach (\$given as \$key => \$value) {\n            switch (gettype(\$value)) {\n                case 'string':\n"
            . "                    \$found[\$key] = htmlspecialchars(trim(\$value), ENT_QUOTES);\n                    break;\n"
            . "                case 'integer':\n                    \$found[\$key] = \$value * " . (1 + drawn(9)) . " + \$this->depth;\n"
            . "                    break;\n                case 'array':\n                    \$found[\$key] = implode(\$separator, "
            . "array_map(static fn (\$one) => ucfirst((string) \$one), \$value));\n                    break;\n                default:\n"
            . "                    \$found[\$key] = null;\n            }\n        }\n        ksort(\$found);\n\n        return \$found + "
            . "['" . WORDS[drawn(count(WORDS))] . "' => \$separator];\n    }\n";
    }
    return $text . "}\n";
}

for ($i = 0; $i < CLASSES; $i++) {
    keep("src/Part/Part$i.php", library($i));
}

keep('src/Piece.php', <<<'PHP'
    <?php
    declare(strict_types=1);

    namespace Site;

    interface Piece
    {
        public function weight(array $page): int;

        public function render(array $page): string;
    }

    PHP);

keep('src/Context.php', <<<'PHP'
    <?php
    declare(strict_types=1);

    namespace Site;

    final class Context
    {
        public function __construct(public readonly string $root)
        {
        }

        public function tag(string $name, string $text, array $attributes = []): string
        {
            $written = '';
            foreach ($attributes as $key => $value) {
                $written .= sprintf(' %s="%s"', $key, htmlspecialchars((string) $value, ENT_QUOTES));
            }
            return "<$name$written>" . htmlspecialchars($text, ENT_QUOTES) . "</$name>";
        }

        public function template(string $file, array $given): string
        {
            extract($given, EXTR_SKIP);
            ob_start();
            require "{$this->root}/templates/$file.php";
            return (string) ob_get_clean();
        }
    }

    PHP);

keep('index.php', <<<'PHP'
    <?php
    declare(strict_types=1);

    use Site\Context;

    /* Style sheets, scripts and images are files, which the server sends by itself. */
    $path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
    if (preg_match('~^/static/[a-z0-9.-]+$~', $path)) {
        return false;
    }
    spl_autoload_register(static function (string $class): void {
        require __DIR__ . '/src/' . str_replace('\\', '/', substr($class, 5)) . '.php';
    });
    $routes = require __DIR__ . '/routes.php';
    if (!isset($routes[$path])) {
        http_response_code(404);
        echo "no such page\n";
        return true;
    }
    $page = require __DIR__ . "/content/{$routes[$path]}.php";
    $context = new Context(__DIR__);
    $pieces = [];
    foreach ($page['parts'] as $number) {
        $class = "Site\\Part\\Part$number";
        $pieces[$number] = new $class($context, $page['number'] % 5);
    }
    $weights = array_map(static fn ($piece) => $piece->weight($page), $pieces);
    arsort($weights);
    $asides = '';
    foreach (array_slice(array_keys($weights), 0, 40) as $number) {
        $asides .= $context->template('aside', ['title' => "Part $number", 'items' => $pieces[$number]->render($page)]);
    }
    $menu = '';
    foreach (array_slice($routes, 0, 40) as $target => $name) {
        $menu .= $context->template('link', ['target' => $target, 'name' => $name]);
    }
    $body = '';
    foreach ($page['paragraphs'] as $text) {
        $body .= $context->template('paragraph', ['text' => $text]);
    }
    header('Content-Type: text/html; charset=utf-8');
    echo $context->template('page', ['page' => $page, 'menu' => $menu, 'body' => $body, 'asides' => $asides]);
    return true;

    PHP);

keep('templates/link.php', "<li><a href=\"<?= htmlspecialchars(\$target) ?>\"><?= htmlspecialchars(\$name) ?></a></li>\n");
keep('templates/paragraph.php', "<p><?= htmlspecialchars(\$text) ?></p>\n");
keep('templates/aside.php', "<section><h3><?= htmlspecialchars(\$title) ?></h3><ul><?= \$items ?></ul></section>\n");
$images = '';
for ($i = 0; $i < IMAGES; $i++) {
    $images .= "<img src=\"/static/picture-$i.svg\" width=\"80\" height=\"80\" alt=\"\">";
}
keep('templates/page.php', "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<title><?= htmlspecialchars(\$page['title']) ?>"
    . "</title>\n<link rel=\"stylesheet\" href=\"/static/base.css\"><link rel=\"stylesheet\" href=\"/static/print.css\">\n"
    . "<link rel=\"icon\" href=\"/static/picture-0.svg\">\n<script src=\"/static/menu.js\" defer></script><script src=\"/static/list.js\" defer>"
    . "</script></head>\n<body><nav><ul><?= \$menu ?></ul></nav>\n<main><h1><?= htmlspecialchars(\$page['title']) ?></h1>\n$images\n"
    . "<?= \$body ?></main>\n<aside><?= \$asides ?></aside></body></html>\n");

$routes = "<?php\nreturn [\n";
for ($n = 1; $n <= $pages; $n++) {
    $name = "page-$n";
    $routes .= "    '/page/$n' => '$name',\n";
    /* Most of what a page needs all pages need; the rest is its own. */
    $parts = range(0, OF_A_PAGE - 31);
    while (count($parts) < OF_A_PAGE) {
        $part = OF_A_PAGE - 30 + drawn(CLASSES - OF_A_PAGE + 30);
        if (!in_array($part, $parts, true)) {
            $parts[] = $part;
        }
    }
    $paragraphs = [];
    for ($i = 0, $number = 8 + drawn(12); $i < $number; $i++) {
        $paragraphs[] = ucfirst(words(40 + drawn(60))) . '.';
    }
    $page = ['number' => $n, 'title' => ucfirst(words(4)), 'parts' => $parts, 'paragraphs' => $paragraphs];
    keep("content/$name.php", '<?php return ' . var_export($page, true) . ";\n");
}
keep('routes.php', $routes . "];\n");

$css = '';
for ($i = 0; $i < 120; $i++) {
    $css .= '.' . WORDS[drawn(count(WORDS))] . "_$i { margin: " . drawn(9) . "px; padding: " . drawn(9) . "px; color: #" . sprintf('%06x', drawn(0xffffff)) . " }\n";
}
keep('static/base.css', "body { font: 15px sans-serif; display: grid; grid-template-columns: 12em 1fr 16em; gap: 1em }\n$css");
keep('static/print.css', "@media print { nav, aside { display: none } }\n$css");
keep('static/menu.js', "for (const link of document.querySelectorAll('nav a')) {\n  if (link.pathname === location.pathname) link.className = 'here';\n}\n");
keep('static/list.js', "const words = {};\nfor (const p of document.querySelectorAll('main p')) {\n  for (const word of p.textContent.split(' ')) words[word] = (words[word] || 0) + 1;\n}\n"
    . "document.body.dataset.words = Object.keys(words).length;\n");
for ($i = 0; $i < IMAGES; $i++) {
    $shapes = '';
    for ($s = 0; $s < 60; $s++) {
        $shapes .= sprintf('<circle cx="%d" cy="%d" r="%d" fill="#%06x"/>', drawn(200), drawn(200), 2 + drawn(20), drawn(0xffffff));
    }
    keep("static/picture-$i.svg", "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 200 200\">$shapes</svg>\n");
}
keep('static/browse.html', <<<'HTML'
    <!DOCTYPE html>
    <title>Loads the pages one after the other, and tells how long it took until each was there</title>
    <pre id="told"></pre>
    <iframe id="page"></iframe>
    <iframe id="held"></iframe>
    <script>
    // While a document is open the load event of the page around it waits, and with it chromium --dump-dom.
    const held = document.getElementById('held').contentDocument;
    held.open();
    const asked = new URLSearchParams(location.search);
    const pages = Number(asked.get('pages')), delay = Number(asked.get('delay'));
    const frame = document.getElementById('page');
    let number = 0, began = 0, total = 0;
    function next() {
      number += 1;
      began = performance.now();
      frame.src = '/page/' + number;
    }
    frame.onload = () => {
      if (!number) return;
      total += performance.now() - began;
      if (number < pages) return setTimeout(next, delay);
      document.getElementById('told').textContent = 'response_ms ' + total;
      held.close();
    };
    setTimeout(next, 0);
    </script>

    HTML);
keep('made', "$pages\n");
